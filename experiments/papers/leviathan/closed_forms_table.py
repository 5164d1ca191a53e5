"""Lines of what is computed without a machine: Table 1, Figures 2 to 4."""

from experiments.records.table import Line, Table, command, rows_of


def table1() -> Table:
    lines = []
    for row in rows_of("table1_operations_speed"):
        name = f"alpha_{row['alpha']}_gamma_{row['gamma']}"
        for quantity in ("operations", "speed"):
            what = f"alpha = {row['alpha']}, gamma = {row['gamma']}: {quantity}"
            value = row[quantity]
            lines.append(Line("table1", name, what, quantity, value, exact=True))
    title = "Table 1: operations and speed against the target alone, c = c_hat = 0"
    note = (
        "Closed forms, Theorems 3.8 and 3.11; `ok` also means: rounds to the paper's."
    )
    return Table("table1", title, note, command("table1"), lines)


def curves(name: str, kind: str, values: list, quantities: tuple, title: str) -> Table:
    """A figure: a row of the catalogue per curve, its value at two points as lines."""
    lines = []
    for value in values:
        for quantity in quantities:
            for alpha in (0.5, 0.8):
                word = quantity.replace("_", " ")
                what = f"{kind} = {value}: {word} at alpha = {alpha}"
                row = f"{kind}_{value}"
                lines.append(Line(name, row, what, f"{quantity}@{alpha}"))
    note = "Closed forms; the paper prints no numbers. All points are in the CSV file."
    return Table(name, title, note, command(name), lines)


def figure2() -> Table:
    values = [1, 3, 5, 7, 10, "inf"]
    title = "Figure 2: expected tokens per call against alpha"
    return curves("figure2", "gamma", values, ("expected_tokens",), title)


def figure3() -> Table:
    values = [0.01, 0.02, 0.05, 0.1]
    title = "Figure 3: the best gamma against alpha"
    return curves("figure3", "c", values, ("best_gamma",), title)


def figure4() -> Table:
    quantities = ("speed", "operations")
    title = "Figure 4: speed and operations against alpha, c = c_hat = 0"
    return curves("figure4", "gamma", [3, 5, 7, 10], quantities, title)
