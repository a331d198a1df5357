package eval

// Kappa returns Cohen's kappa of two raters over the same items (Cohen 1960, "A
// coefficient of agreement for nominal scales"): 1 is agreement, 0 what chance gives,
// below 0 less than chance. a and b are as long, and the words may be any. ok is false
// when it is not defined: no items, or both raters gave one and the same word
// throughout.
func Kappa(a, b []string) (kappa float64, ok bool) {
	if len(a) != len(b) {
		return 0, false
	}
	index := map[string]int{}
	for _, words := range [][]string{a, b} {
		for _, word := range words {
			if _, known := index[word]; !known {
				index[word] = len(index)
			}
		}
	}
	k := len(index)
	counts := make([]int, k*k)
	for i := range a {
		counts[index[a[i]]*k+index[b[i]]]++
	}
	value := kappaOf(counts)
	return orZero(value), value != nil
}

// kappaOf a square table in rows, nil when not defined.
func kappaOf(counts []int) *float64 {
	k := 0
	for k*k < len(counts) {
		k++
	}
	var n, same, chance float64
	for i := range k {
		var row, column float64
		for j := range k {
			row += float64(counts[i*k+j])
			column += float64(counts[j*k+i])
		}
		n += row
		same += float64(counts[i*k+i])
		chance += row * column
	}
	if n == 0 || chance == n*n {
		return nil
	}
	return new((same*n - chance) / (n*n - chance))
}
