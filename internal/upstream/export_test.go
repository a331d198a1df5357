package upstream

var (
	NewItem    = newItem
	PublicName = publicName
	IsPlainURI = isPlainURI
)
