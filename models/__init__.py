"""The architectures: one file a family, saying which hyperparameters it reads and what its forward pass is."""
