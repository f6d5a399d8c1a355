// swift-tools-version: 6.2

import PackageDescription

// As an app's package depends on Hapax: from outside, so that nothing of it is seen but what is public.
let package = Package(
    name: "usage",
    platforms: [.macOS(.v13), .iOS(.v16)],
    dependencies: [.package(name: "hapax", path: "../..")],
    targets: [
        .executableTarget(
            name: "usage",
            dependencies: [.product(name: "HapaxClient", package: "hapax")],
            swiftSettings: [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)])
    ]
)
