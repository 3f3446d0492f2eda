//! A node, assembled from its config.
