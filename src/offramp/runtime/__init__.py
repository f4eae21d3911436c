"""MODEL -> FAST MODEL: the engines that run a model under a policy."""
