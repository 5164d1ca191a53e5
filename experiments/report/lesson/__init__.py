"""A lesson in eight pages that compute: what each shows is the library's own."""
