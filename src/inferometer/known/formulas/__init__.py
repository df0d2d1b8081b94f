"""The field's formulas as functions, one module a section: `from inferometer.known.formulas import llm`.

`registry.find_formula` finds one by name, `calculate.calculate` computes one from text. Nothing is imported here, so
that naming the package costs nothing.
"""
