"""The notebooks, and the pages that are made of them (:mod:`notebooks.pages`)."""
