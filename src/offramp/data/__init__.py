"""TEXT -> TOKENS: read labelled texts, number their labels, turn them into token ids, choose who shares a batch."""
