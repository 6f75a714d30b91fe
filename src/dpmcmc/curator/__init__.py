"""Rows -> ratio -> clip -> exact sum -> noise or coin. The only place where rows are touched.

In the order of the flow: `curator` owns the rows and grants runs; `door` tries the model on made-up
rows, `layouts` and `rowwise` see that no row computes with another; `program` puts answers in the
place of asks, `fused` for GPUs; the queries (`queries`, `accept`, `gradient`, `curvature`,
`statistic`, `count`, `batches`, `fixed_batch`, `tuna`, `filtered`, `exact`) clip, `exact_sum` adds,
and `noise` draws; `account` keeps the bill, `federation` asks several curators.
"""
