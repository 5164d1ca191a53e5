"""specjax beside what decodes the same weights elsewhere; not installed."""
