"""What several tests share: doubles, servers of this machine, small runs and data sets, strategies."""
