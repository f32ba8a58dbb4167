"""The page to play with: its table of outcomes (:mod:`play.outcomes`); its program is ``play.js``."""
