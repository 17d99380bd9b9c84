"""The programs of the site want Sphinx, which those who run the examples of the pages may lack."""

collect_ignore = ["conf.py", "build_site.py", "building"]
