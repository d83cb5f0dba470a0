"""The contract's messages and the values of ``logstore.api``: from one to the other, for broker and client alike."""
