// swift-tools-version: 6.2

import PackageDescription

// An app that tracks, and its tests, as they depend on Hapax from outside. The model and the tests build on Linux as well; the view does where
// there is SwiftUI.
let package = Package(
    name: "notes-app",
    platforms: [.macOS(.v14), .iOS(.v17)],
    dependencies: [.package(name: "hapax", path: "../..")],
    targets: [
        .target(
            name: "NotesApp",
            dependencies: [
                .product(name: "HapaxClient", package: "hapax"), .product(name: "HapaxClientUI", package: "hapax"),
            ],
            swiftSettings: [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
        ),
        .testTarget(
            name: "NotesAppTests",
            dependencies: ["NotesApp", .product(name: "HapaxTestKit", package: "hapax")],
            swiftSettings: [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
        ),
    ]
)
