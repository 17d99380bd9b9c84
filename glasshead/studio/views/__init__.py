"""Views: what each view shows, as plain data: for the page, and for the file of a report."""
