"""From files after a crash to a log: scan, cut of a torn tail, rebuild; salvage of what is readable."""
