/// Makes the inner pages of a table's tree anew where they do not lead to all of its rows
/// (https://www.sqlite.org/fileformat2.html#b_tree_pages).
///
/// SQLite finds rows from the root down, so one damaged page hides all that is below it. But a file that can be vacuumed step by step
/// also says of each page which one is above it (https://www.sqlite.org/fileformat2.html#pointer_map_or_ptrmap_pages): the pages below a
/// damaged one are known by that, and their order by the rows they hold.
struct TreeRepair {
    typealias Number = UInt32

    /// Gives the page of a number; nil if there is none.
    private let read: (Number) throws -> [UInt8]?
    private let count: Number
    /// Which pages say that they are below one.
    private var below: [Number: [Number]] = [:]
    /// What says nothing possible: it is damaged itself.
    private var unknown: Set<Number> = []
    private var inner: [Number: InnerPage?] = [:]
    /// By the pages above them that are whole.
    private var listed: [Number: Number] = [:]
    /// What to put in the place of damaged pages.
    private(set) var pages: [Number: [UInt8]] = [:]

    /// - Parameters:
    ///   - count: Of the file's pages.
    ///   - roots: Of tables.
    ///   - read: Throws what the disk says.
    init(roots: [Number], count: Number, read: @escaping (Number) throws -> [UInt8]?) throws {
        // No file has more; a length that is wrong must not make numbers run over.
        (self.count, self.read) = (min(count, 1 << 30), read)
        try readMap()
        var trees: [[Number]] = []
        for root in roots where isOfTree(root) { trees.append(try inner(from: root)) }
        for (number, page) in inner {
            if let page, isWhole(page, below[number] ?? []) { for child in page.children { listed[child] = number } }
        }
        // From below: a page is found by the rows under it.
        for tree in trees { for number in tree.reversed() { try mend(number) } }
    }

    // MARK: - The map

    private static let entryBytes = 5
    private static let mapped = Number(QueueRoom.pageBytes / entryBytes)
    private static let isBelow: UInt8 = 5
    /// Kinds of entries: of a root, a free page, two of a long row, one below another.
    private static let kinds: ClosedRange<UInt8> = 1...5

    private mutating func readMap() throws {
        var map: Number = 2
        while map <= count {
            if let page = try read(map) {
                for index in 0..<Self.mapped where map + 1 + index <= count {
                    let place = Int(index) * Self.entryBytes
                    let (kind, parent) = (page[place], page.number(place + 1))
                    if !Self.kinds.contains(kind) || parent > count || kind == Self.isBelow && !isOfTree(parent) {
                        unknown.insert(map + 1 + index)
                    } else if kind == Self.isBelow {
                        below[parent, default: []].append(map + 1 + index)
                    }
                }
            }
            let (next, isOver) = map.addingReportingOverflow(Self.mapped + 1)
            if isOver { return }
            map = next
        }
    }

    /// Whether a page of that number can be one of a table's tree: not the first one, nor one of the map.
    private func isOfTree(_ number: Number) -> Bool {
        (3...max(count, 3)).contains(number) && (number - 2) % (Self.mapped + 1) != 0
    }

    // MARK: - The tree

    /// Each before those below it.
    private mutating func inner(from root: Number) throws -> [Number] {
        var tree = [root]
        var next = 0
        while next < tree.count {
            let number = tree[next]
            next += 1
            guard inner[number] == nil, below[number] != nil || number == root else { continue }
            let page = try read(number).flatMap(InnerPage.init)
            inner[number] = .some(page)
            let children = Set(below[number] ?? []).union(page?.children ?? [])
            tree += children.filter { below[$0] != nil && inner[$0] == nil }.sorted()
        }
        return tree
    }

    private func isWhole(_ page: InnerPage, _ below: [Number]) -> Bool {
        page.isInOrder && Set(page.children).isSuperset(of: below)
    }

    private mutating func mend(_ number: Number) throws {
        guard pages[number] == nil, let known = inner[number], let said = below[number] else { return }
        // The map can be wrong as well.
        let found = said.filter { listed[$0] == nil || listed[$0] == number }
        if let known, isWhole(known, found) { return }
        let children = Set(found).union(known?.children.filter { unknown.contains($0) } ?? [])
        var parts: [(number: Number, rows: ClosedRange<Int64>)] = []
        for child in children.sorted() {
            if let rows = try rows(below: child) { parts.append((child, rows)) }
        }
        parts.sort { $0.rows.lowerBound < $1.rows.lowerBound }
        if parts.count == 1 {
            // SQLite takes a root with one page below it for damaged.
            pages[number] = try page(parts[0].number)
        } else if !parts.isEmpty {
            // A number that is noise can seem to be the last of a page: its rows end where the next one's begin.
            let next = parts.dropFirst().map { max($0.rows.lowerBound, 1) - 1 } + [Int64.max]
            pages[number] = InnerPage.bytes(zip(parts, next).map { ($0.number, min($0.rows.upperBound, $1)) })
        }
    }

    private func page(_ number: Number) throws -> [UInt8]? {
        if let mended = pages[number] { return mended }
        return try read(number)
    }

    /// From the first row below a page to the last one, of the pages that are whole; nil if none is.
    private func rows(below number: Number) throws -> ClosedRange<Int64>? {
        var tries = Self.maximumTries
        guard let first = try end(below: number, isLast: false, depth: 0, &tries)?.lowerBound else { return nil }
        tries = Self.maximumTries
        guard let last = try end(below: number, isLast: true, depth: 0, &tries)?.upperBound else { return nil }
        return first <= last ? first...last : nil
    }

    /// No tree is deeper; damaged pages can lead back to each other.
    private static let maximumDepth = 20
    private static let maximumTries = 2_048

    /// The rows of the first page with any, or of the last one.
    private func end(below number: Number, isLast: Bool, depth: Int, _ tries: inout Int) throws -> ClosedRange<Int64>? {
        tries -= 1
        guard depth < Self.maximumDepth, tries > 0, let page = try page(number) else { return nil }
        guard let inner = InnerPage(page) else { return LeafPage(page)?.rows }
        for child in isLast ? inner.children.reversed() : inner.children {
            if let rows = try end(below: child, isLast: isLast, depth: depth + 1, &tries) { return rows }
        }
        return nil
    }
}

/// A page of a table's tree that leads to others.
private struct InnerPage {
    /// In the order of the rows below them.
    let children: [UInt32]
    /// The last row that can be below each but the last.
    private let keys: [Int64]

    private static let kind: UInt8 = 5
    private static let headerBytes = 12

    init?(_ page: [UInt8]) {
        guard page[0] == Self.kind, let cells = page.cells(behind: Self.headerBytes) else { return nil }
        var (children, keys): ([UInt32], [Int64]) = ([], [])
        for cell in cells {
            guard cell + 4 <= page.count, let key = page.varint(cell + 4) else { return nil }
            children.append(page.number(cell))
            keys.append(key.value)
        }
        (self.children, self.keys) = (children + [page.number(8)], keys)
    }

    var isInOrder: Bool { zip(keys, keys.dropFirst()).allSatisfy { $0 < $1 } }

    /// - Parameter children: Each with the last row below it, in order.
    /// - Returns: nil if they are more than a page can lead to.
    static func bytes(_ children: [(number: UInt32, last: Int64)]) -> [UInt8]? {
        var page = [UInt8](repeating: 0, count: QueueRoom.pageBytes)
        let cells = children.dropLast()
        guard let last = children.last, cells.count <= UInt16.max else { return nil }
        var end = page.count
        for (index, child) in cells.enumerated() {
            let cell = child.number.bytes + varint(child.last)
            end -= cell.count
            guard end >= headerBytes + 2 * cells.count else { return nil }
            page.replaceSubrange(end..<end + cell.count, with: cell)
            page.replaceSubrange(headerBytes + 2 * index..<headerBytes + 2 * index + 2, with: UInt16(end).bytes)
        }
        page[0] = kind
        page.replaceSubrange(3..<5, with: UInt16(cells.count).bytes)
        page.replaceSubrange(5..<7, with: UInt16(end).bytes)
        page.replaceSubrange(8..<12, with: last.number.bytes)
        return page
    }

    private static func varint(_ value: Int64) -> [UInt8] {
        var rest = UInt64(bitPattern: value)
        guard rest >> 56 == 0 else {
            return (0..<8).map { UInt8(truncatingIfNeeded: rest >> (57 - 7 * $0)) | 0x80 } + [UInt8(truncatingIfNeeded: rest)]
        }
        var bytes = [UInt8(rest & 0x7F)]
        while rest > 0x7F {
            rest >>= 7
            bytes.insert(UInt8(rest & 0x7F) | 0x80, at: 0)
        }
        return bytes
    }
}

/// A page of a table's tree that holds rows.
private struct LeafPage {
    /// Their numbers; nil if there are none.
    let rows: ClosedRange<Int64>?

    private static let kind: UInt8 = 13
    private static let headerBytes = 8

    init?(_ page: [UInt8]) {
        guard page[0] == Self.kind, let cells = page.cells(behind: Self.headerBytes) else { return nil }
        var numbers: [Int64] = []
        for cell in cells {
            guard let size = page.varint(cell), let number = page.varint(size.end), numbers.last.map({ $0 < number.value }) ?? true else {
                return nil
            }
            numbers.append(number.value)
        }
        rows = numbers.first.flatMap { first in numbers.last.map { first...$0 } }
    }
}

extension [UInt8] {
    fileprivate func number(_ place: Int) -> UInt32 {
        self[place..<place + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// Where each is in a page of a tree; nil if one is not in it.
    fileprivate func cells(behind header: Int) -> [Int]? {
        let cells = Int(self[3]) << 8 | Int(self[4])
        guard header + 2 * cells <= count else { return nil }
        let places = (0..<cells).map { Int(self[header + 2 * $0]) << 8 | Int(self[header + 2 * $0 + 1]) }
        return places.allSatisfy { $0 >= header + 2 * cells && $0 < count } ? places : nil
    }

    /// A number of one to nine bytes (https://www.sqlite.org/fileformat2.html#varint), and where it ends.
    fileprivate func varint(_ place: Int) -> (value: Int64, end: Int)? {
        var value: UInt64 = 0
        for index in 0..<9 {
            guard place + index < count else { return nil }
            let byte = self[place + index]
            if index == 8 { return (Int64(bitPattern: value << 8 | UInt64(byte)), place + 9) }
            value = value << 7 | UInt64(byte & 0x7F)
            if byte < 0x80 { return (Int64(bitPattern: value), place + index + 1) }
        }
        return nil
    }
}

extension FixedWidthInteger {
    /// The highest first.
    fileprivate var bytes: [UInt8] { withUnsafeBytes(of: bigEndian, Array.init) }
}
