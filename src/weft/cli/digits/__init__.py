"""The demo: train a convolutional network on real handwritten digits."""
