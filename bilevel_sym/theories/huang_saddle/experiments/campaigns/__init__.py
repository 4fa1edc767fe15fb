"""Campaigns that ship: escapes, tightness of claims, errors of hypergradients; each a plan, a picture and numbers."""
