"""Beyond one machine: work that Ray hands to its workers, here or on a cluster."""
