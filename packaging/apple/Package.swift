// swift-tools-version:5.5
// The C API of kvstore for Swift. packaging/apple/xcframework copies this file next to the CKVStore.xcframework that it builds.
import PackageDescription

let package = Package(
    name: "kvstore",
    platforms: [.macOS(.v11), .iOS(.v12)],
    products: [.library(name: "CKVStore", targets: ["CKVStore"])],
    targets: [.binaryTarget(name: "CKVStore", path: "CKVStore.xcframework")]
)
