extension String {
    /// nil unless the bytes are UTF-8. The standard library's own (`validating:as:`) is not there on the oldest systems that the package is for.
    init?(validUTF8 bytes: some Collection<UInt8>) {
        self.init(decoding: bytes, as: UTF8.self)
        // What is not UTF-8 has been replaced.
        guard utf8.elementsEqual(bytes) else { return nil }
    }
}
