"""The BLS: a draft/target loop over Triton models, one prompt per worker thread."""
