"""Ghadimi and Wang's BA, and the rates of AID-BiO and ITD-BiO by Ji, Yang and Liang: claims and errata."""
