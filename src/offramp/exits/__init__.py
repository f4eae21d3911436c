"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: one file per exit, and the model that holds them."""
