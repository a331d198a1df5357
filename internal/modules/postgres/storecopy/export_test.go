package storecopy

// SetBatchRows makes transactions small until the returned function is called.
func SetBatchRows(n int) (restore func()) {
	was := batchRows
	batchRows = n
	return func() { batchRows = was }
}
