"""General helpers without any knowledge of tasks, noise or models: argument checks, files, tables, threads, devices."""
