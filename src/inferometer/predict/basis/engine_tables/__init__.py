"""Operator tables that serving engines were measured with, read from the installed package `aiconfigurator-core`."""
