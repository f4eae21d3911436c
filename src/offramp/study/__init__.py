"""The papers' tables and figures: studies as files, runs as JSON, tables and pictures of them."""
