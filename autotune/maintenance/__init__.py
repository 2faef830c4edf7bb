"""What needs a GPU to maintain the cache: `retiming` measures records again."""
