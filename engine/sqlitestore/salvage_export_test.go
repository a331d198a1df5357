package sqlitestore

// SalvagedTables are the tables that Salvage reads.
var SalvagedTables = salvagedTables
