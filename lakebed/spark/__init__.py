"""The engine: everything that touches PySpark. DataFrame and Arrow API only, so that it runs on Spark Connect too."""
