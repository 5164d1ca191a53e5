"""The pages that are made from records: tables, figures, and claims."""
