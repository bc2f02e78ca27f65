"""Source text -> kernels. Pure: no files, no editor; never raises."""
