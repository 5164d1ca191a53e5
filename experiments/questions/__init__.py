"""Open questions, a module each: what is asked, what would end it, what was found."""
