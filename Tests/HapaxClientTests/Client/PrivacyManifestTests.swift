import Foundation
import TestSupport
import Testing

@Suite("PrivacyInfo.xcprivacy", .endsWhenItHangs)
struct PrivacyManifestTests {
    /// The APIs that need a reason, as Apple lists them ("Describing use of required reason API"), as far as such code could use them.
    private static let namesByCategory = [
        "FileTimestamp": [
            "stat", "fstat", "lstat", "fstatat", "getattrlist", "fgetattrlist", "getattrlistat", "creationDate", "modificationDate",
            "creationDateKey", "contentModificationDateKey", "fileModificationDate",
        ],
        "DiskSpace": [
            "statfs", "fstatfs", "statvfs", "fstatvfs", "systemFreeSize", "systemSize", "volumeAvailableCapacityKey",
            "volumeAvailableCapacityForImportantUsageKey", "volumeTotalCapacityKey",
        ],
        "SystemBootTime": ["systemUptime", "mach_absolute_time"],
        "UserDefaults": ["UserDefaults"],
        "ActiveKeyboards": ["activeInputModes"],
    ]

    private static let root = PackageLayout.root

    private func manifest() throws -> [String: Any] {
        let file = Self.root.appending(path: "Client/HapaxClient/PrivacyInfo.xcprivacy")
        let list = try PropertyListSerialization.propertyList(from: try Data(contentsOf: file), format: nil)
        return try #require(list as? [String: Any])
    }

    /// Every word of the code that an app links, without its comments.
    private func words() throws -> Set<String> {
        var words: Set<String> = []
        for folder in ["Client/HapaxClient", "Shared/HapaxModel", "Shared/HapaxSQLite"] {
            let directory = Self.root.appending(path: folder)
            let names = try FileManager.default.subpathsOfDirectory(atPath: directory.path)
            for name in names where name.hasSuffix(".swift") {
                let text = try String(contentsOf: directory.appending(path: name), encoding: .utf8)
                for line in text.split(separator: "\n") where !line.drop(while: { $0 == " " }).hasPrefix("//") {
                    words.formUnion(line.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init))
                }
            }
        }
        return words
    }

    @Test("declares a reason for exactly those APIs that the code uses")
    func declaresWhatIsUsed() throws {
        let words = try words()
        let used = Self.namesByCategory.filter { !words.isDisjoint(with: $0.value) }.map { "NSPrivacyAccessedAPICategory" + $0.key }
        let declared = try #require(try manifest()["NSPrivacyAccessedAPITypes"] as? [[String: Any]])
        #expect(Set(declared.compactMap { $0["NSPrivacyAccessedAPIType"] as? String }) == Set(used))
        #expect(declared.allSatisfy { ($0["NSPrivacyAccessedAPITypeReasons"] as? [String])?.isEmpty == false })
    }

    @Test("tracks nobody, and says what is collected: events, the user's id, the install's")
    func saysWhatIsCollected() throws {
        let manifest = try manifest()
        #expect(manifest["NSPrivacyTracking"] as? Bool == false)
        let collected = try #require(manifest["NSPrivacyCollectedDataTypes"] as? [[String: Any]])
        let types = collected.compactMap { $0["NSPrivacyCollectedDataType"] as? String }
        #expect(types.map { $0.dropFirst("NSPrivacyCollectedDataType".count) } == ["ProductInteraction", "UserID", "DeviceID"])
        #expect(collected.allSatisfy { $0["NSPrivacyCollectedDataTypeTracking"] as? Bool == false })
    }
}
