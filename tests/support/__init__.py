"""Code that several tests share: doubles, local servers, small runs and data sets, strategies."""
