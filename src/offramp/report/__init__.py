"""DECISIONS -> NUMBERS, PICTURES: scores, a run's history, figures, and one page that shows them."""
