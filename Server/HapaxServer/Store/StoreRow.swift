extension [String?] {
    /// The number in a column. An answer that cannot be read is no zero.
    func number(_ column: Int) throws(StoreError) -> Int64 {
        guard column < count, let number = self[column].flatMap({ Int64($0) }) else {
            throw .unavailable("an answer of the store cannot be read")
        }
        return number
    }
}
