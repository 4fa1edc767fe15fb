"""Escaping saddle points in bilevel optimization: claims, measures, errata."""
