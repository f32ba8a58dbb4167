"""The gold tables: queries of TPC-H, with its values for validation, over views that are named like its tables."""

SILVER = ("orders", "lineitem")
BRONZE = ("customer", "supplier", "nation", "region")

_REVENUE = "sum(l_extendedprice * (1 - l_discount))"

QUERIES = {
    "q1_pricing_summary": f"""
        SELECT l_returnflag, l_linestatus,
               sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, {_REVENUE} AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
               avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
               count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE'1998-09-02'
        GROUP BY l_returnflag, l_linestatus""",
    "q3_shipping_priority": f"""
        SELECT l_orderkey, {_REVENUE} AS revenue, o_orderdate, o_shippriority
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE'1995-03-15' AND l_shipdate > DATE'1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "q5_local_supplier_volume": f"""
        SELECT n_name, {_REVENUE} AS revenue
        FROM region JOIN nation ON n_regionkey = r_regionkey JOIN supplier ON s_nationkey = n_nationkey
             JOIN lineitem ON l_suppkey = s_suppkey JOIN orders ON o_orderkey = l_orderkey
             JOIN customer ON c_custkey = o_custkey AND c_nationkey = s_nationkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE'1994-01-01' AND o_orderdate < DATE'1995-01-01'
        GROUP BY n_name""",
    "q6_forecast_revenue": """
        SELECT sum(l_extendedprice * l_discount) AS revenue
        FROM lineitem
        WHERE l_shipdate >= DATE'1994-01-01' AND l_shipdate < DATE'1995-01-01'
              AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q12_shipping_modes": """
        SELECT l_shipmode,
               count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')) AS high_line_count,
               count_if(o_orderpriority NOT IN ('1-URGENT', '2-HIGH')) AS low_line_count
        FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
              AND l_receiptdate >= DATE'1994-01-01' AND l_receiptdate < DATE'1995-01-01'
        GROUP BY l_shipmode""",
    "q18_large_orders": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
}
