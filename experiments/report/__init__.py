"""The pages made from records: tables, figures, claims."""
