"""What commands share of stdin, stdout, stderr and signals. It knows no command."""
