package eval

import "sort"

// sortStable sorts by compare. Unlike slices.SortStableFunc it is not compiled anew for each element
// type, which takes 24 KB of the program each time; reports have many types and few rows.
func sortStable[T any](list []T, compare func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}
