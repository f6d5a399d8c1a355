extension [String?] {
    /// The number in a column. An answer that cannot be read is no zero.
    func number(_ column: Int) throws(StoreError) -> Int64 {
        guard column < count, let number = self[column].flatMap({ Int64($0) }) else {
            throw .unavailable("an answer of the store cannot be read")
        }
        return number
    }

    /// The same, or 0 for NULL: the sum of nothing.
    func sum(_ column: Int) throws(StoreError) -> Int64 { column < count && self[column] == nil ? 0 : try number(column) }

    /// All columns.
    func sums() throws(StoreError) -> [Int64] {
        var numbers: [Int64] = []
        for column in indices { numbers.append(try sum(column)) }
        return numbers
    }
}
