package sqlitestore_test

const childRole = "GAVEL_SQLITESTORE_TEST_CHILD"

func child(string) int { return 0 }
