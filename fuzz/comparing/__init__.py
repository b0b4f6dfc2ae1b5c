"""Two files of tensors, or two folders of them, held against one another in pieces of bounded size."""
