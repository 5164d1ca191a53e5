"""From records to pages: tables, figures, claims."""
