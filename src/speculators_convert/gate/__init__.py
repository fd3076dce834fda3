"""The gate: a report, evidence, a receipt and a policy to one verdict."""
