"""Who proposes the tokens; one file each, of `specjax.types.Drafter`."""
